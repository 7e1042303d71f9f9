// RUN: tpusim opt -p 'convert-top-to-tpu{chip=cv183x mode=BF16}' %s | filecheck %s
//
// An AddConst becomes an Add of a weight with one value.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %y = "top.AddConst"(%x) {const_val = 3.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<2x4x6xbf16> loc("xy_bf16")
// CHECK-NEXT: %3 = "top.Weight"() : () -> tensor<1x1x1xbf16> loc("y_const_val")
// CHECK-NEXT: %4 = "tpu.Add"(%2, %3) {{.*}} -> tensor<2x4x6xbf16> loc("y")
// CHECK-NEXT: %5 = "tpu.Cast"(%4) {{.*}} -> tensor<2x4x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %5 : tensor<2x4x6xf32>
