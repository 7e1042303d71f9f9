// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=INT8 quant_input=true},choose-formats,propagate-ranges,convert-ops,strip-io-quant' %s | filecheck %s
//
// An input whose stored integers are given has no Cast.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<0.0:1.0>>> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>> loc("x")
  %y = "top.Sigmoid"(%x) : (tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>>) -> tensor<1x4x6x6x!quant.calibrated<f32<0.0:1.0>>> loc("y")
  func.return %y : tensor<1x4x6x6x!quant.calibrated<f32<0.0:1.0>>>
}

// CHECK:      module.asymmetric = false{{.*}}module.chip = "bm1684x"{{.*}}module.mode = "INT8"{{.*}}module.state = "TPU_LOWERED"
// CHECK:      %1 = "top.Input"(%0) {tpusim.dtype = "int8"} : (tensor<1x4x6x6x!quant.uniform<i8:f32, 0.015748031496062992>>) -> tensor<1x4x6x6x!quant.uniform<i8:f32, 0.015748031496062992>> loc("x")
// CHECK-NEXT: %2 = "top.Weight"() : () -> tensor<1x1x1x256xui8> loc("y_table")
// CHECK-NEXT: %3 = "tpu.Lut"(%1, %2) {{.*}} -> tensor<1x4x6x6x!quant.uniform<u8:f32, 0.00392156862745098>> loc("y")
// CHECK-NEXT: %4 = "tpu.Cast"(%3) {{.*}} -> tensor<1x4x6x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %4 : tensor<1x4x6x6xf32>
