// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=F16},choose-formats,propagate-ranges,convert-ops' %s | filecheck %s
//
// Every op becomes ops of the chip in its number format; casts are inserted where types differ.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %y = "top.Softmax"(%x) {axis = 3} : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("y")
  func.return %y : tensor<1x4x6x6xf32>
}

// CHECK:      module.asymmetric = false{{.*}}module.chip = "bm1684x"{{.*}}module.mode = "F16"{{.*}}module.state = "TPU_LOWERED"
// CHECK:      %1 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %2 = "top.Input"(%0) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %3 = "tpu.Cast"(%2) {{.*}} -> tensor<1x4x6x6xf16> loc("xy_f16")
// CHECK-NEXT: %4 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %5 = "tpu.Softmax"(%3, %4, %1, %1, %1, %1) {axis = 3 : si32, log = false, beta = 1.000000e+00 : f64}{{.*}} -> tensor<1x4x6x6xf16> loc("y")
// CHECK-NEXT: %6 = "tpu.Cast"(%5) {{.*}} -> tensor<1x4x6x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %6 : tensor<1x4x6x6xf32>
