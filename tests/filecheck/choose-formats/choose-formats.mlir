// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=INT8 qtable=%S/qtable},choose-formats,propagate-ranges,convert-ops' %s | filecheck %s
//
// Every op gets its number format, that of the mode or that of the quantisation table; convert-ops makes ops of it.
// FILE qtable: y F16

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<0.0:1.0>>> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>> loc("x")
  %a = "top.Relu"(%x) : (tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>>) -> tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>> loc("a")
  %y = "top.Softmax"(%a) {axis = 3} : (tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>>) -> tensor<1x4x6x6x!quant.calibrated<f32<0.0:1.0>>> loc("y")
  func.return %y : tensor<1x4x6x6x!quant.calibrated<f32<0.0:1.0>>>
}

// CHECK:      module.asymmetric = false{{.*}}module.chip = "bm1684x"{{.*}}module.mode = "INT8"{{.*}}module.state = "TPU_LOWERED"
// CHECK:      %1 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %2 = "top.Input"(%0) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %3 = "tpu.Cast"(%2) {{.*}} -> tensor<1x4x6x6x!quant.uniform<i8:f32, 0.015748031496062992>> loc("xa_si8")
// CHECK-NEXT: %4 = "tpu.Relu"(%3) {{.*}} -> tensor<1x4x6x6x!quant.uniform<i8:f32, 0.015748031496062992>> loc("a")
// CHECK-NEXT: %5 = "tpu.Cast"(%4) {{.*}} -> tensor<1x4x6x6xf16> loc("ay_f16")
// CHECK-NEXT: %6 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %7 = "tpu.Softmax"(%5, %6, %1, %1, %1, %1) {axis = 3 : si32, log = false, beta = 1.000000e+00 : f64}{{.*}} -> tensor<1x4x6x6xf16> loc("y")
// CHECK-NEXT: %8 = "tpu.Cast"(%7) {{.*}} -> tensor<1x4x6x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %8 : tensor<1x4x6x6xf32>
